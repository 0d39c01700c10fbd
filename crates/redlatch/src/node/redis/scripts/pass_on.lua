-- RELEASE when it is not as mostly: whose turn it is now, if anybody waits.
--
-- Runs after release.lua, which see for KEYS and ARGV, and call.lua. Has from
-- there: value, now, slot and seen, the ballot of the slot, and limit.

local turn = tonumber(ARGV[6] or '') or 200

-- What was parked with a ticket: the last millisecond at which it may be granted;
-- its ballot, 0 for a plain lock; its ttl, its number, and its token.
local function parts(parked, ticket)
    local last, ballot, ttl, number, token =
        string.match(parked, '^(%d+) (%d+) (%d+) (%d+) (.*)$', #ticket + 2)
    return last + 0, ballot, ttl, number, token
end

-- The lock is free again, or is about to be: it is kept for the first, for its
-- turn of so many milliseconds.
local function freed(known)
    if call_first('T', known) then
        call('ZADD', KEYS[2], string.format('-%.0f', now + turn), '')
    end
end

-- Whether this ballot would be granted: what guard.lua and ballot.lua ask for.
local function admits(ballot)
    if not KEYS[3] then
        -- Who gives back a plain lock knows nothing of ballots.
        return false
    end
    local expected = ARGV[3] or ''
    if expected ~= '' then
        local noted = call('HMGET', KEYS[3], 'guard', 'floor', 'armed')
        if noted[1] ~= expected then
            local run, deployment = string.match(expected, '^(%S*) %d+ (.*)$')
            local its_run, its_deployment = string.match(noted[1] or '', '^(%S*) %d+ (.*)$')
            if its_run ~= run then
                local info = call('INFO', 'server') .. call('INFO', 'replication')
                run = string.match(info, 'run_id:(%x+)') ..
                    string.match(info, 'master_replid:(%x+)')
            end
            if its_run ~= run or its_deployment ~= deployment then
                return false
            end
        end
        if not noted[2] or noted[3] + 0 > now then
            return false
        end
        seen = math.max(seen, noted[2] + 0)
    end
    return ballot > seen and ballot <= limit
end

-- Grants the lock to the request that the first has parked, by the rules for
-- one that has just come.
local function hand_on(ticket, parked, second, its_request)
    local last, ballot, ttl, number, token = parts(parked, ticket)
    -- One too far away was parked before this server's clock was stepped back.
    if now > last or last > now + math.floor(turn / 4) or
        (ballot ~= '0' and not admits(ballot + 0)) then
        return false
    end
    -- Said last: a server that refuses to write (it has no memory or no replica
    -- left, or is one) ends the script here, and nobody must have heard of it.
    call('ZREM', KEYS[2], ticket, parked, '')
    if ballot ~= '0' then
        call('HSET', KEYS[3], slot, ballot)
    end
    call('SET', KEYS[1], token, 'PX', ttl)
    -- A server writes first to the client that it has called last. It is the one
    -- who has the lock now that everybody waits for.
    call_next(ballot, now, turn, second, its_request)
    local heard = publish(ticket, 'G' .. number .. ' ')
    if not heard then
        -- Who gives it back may call nobody: it stays the first.
        local ahead = head()
        local place = ahead and call('ZSCORE', KEYS[2], ahead) - 1 or now * 1024
        call('ZADD', KEYS[2], string.format('%.0f', place), ticket)
        call('PEXPIRE', KEYS[2], '60000')
    end
    return heard and heard > 0
end

local leaves, unparks = ARGV[4] or '', ARGV[5] or ''
local waited_for, parked, second, its_request = first()
if unparks ~= '' then
    local mine = parked_with(unparks)
    if mine and select(5, parts(mine, unparks)) == ARGV[1] then
        call('ZREM', KEYS[2], mine)
        waited_for, parked, second, its_request = first()
    end
end
if waited_for and leaves ~= '' then
    strike(leaves)
    -- What it was called for goes to the next.
    if waited_for == leaves then
        if call('PTTL', KEYS[1]) == -2 then
            freed()
        else
            call_first(FIRST)
        end
    end
    waited_for, parked, second, its_request = first()
end

if value == ARGV[1] then
    if parked and hand_on(waited_for, parked, second, its_request) then
        return 'RELEASED'
    end
    -- Called before the key is gone, so that the first hears it before it is
    -- told of that: it need not look then.
    if waited_for then
        freed(waited_for)
    end
    call('DEL', KEYS[1])
    return 'RELEASED'
elseif value then
    return 'FOREIGN'
else
    return 'MISSING'
end
