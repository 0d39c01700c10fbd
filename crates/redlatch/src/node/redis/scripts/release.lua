-- RELEASE: gives a lock back. Allowed in quarantine: it gives nothing away.
--
-- KEYS[1]  the lock
-- KEYS[2]  the queue (see queue.lua, which runs before this)
-- KEYS[3]  the highest ballot granted in each slot; not given for a plain lock
-- ARGV[1]  for how many milliseconds a free lock is kept for the first who waits
-- ARGV[2]  the token that names the lease
-- ARGV[3]  a ticket that is given up, or ''
-- ARGV[4]  the lock's slot
-- ARGV[5]  the highest ballot that was ever sent for this token
-- ARGV[6]  how many milliseconds a ballot may be ahead of the clock
--
-- Returns RELEASED, MISSING (no such key) or FOREIGN (another lease, or none).
-- Reading and deleting are one step: between two the lease could expire and
-- the next holder's lock would be deleted.

local time
local function clock()
    time = time or call('TIME')
    return time[1] * 1000 + math.floor(time[2] / 1000)
end

if KEYS[3] then
    -- What of this lease is still on its way must find its ballot too low. One
    -- far ahead of the clock is let be: it would stop the whole slot.
    local ballot = tonumber(ARGV[5])
    if ballot > tonumber(call('HGET', KEYS[3], ARGV[4]) or 0) and
        ballot <= (clock() + ARGV[6]) * 1024 then
        call('HSET', KEYS[3], ARGV[4], ARGV[5])
    end
end

local waited_for = first()
if waited_for and ARGV[3] ~= '' then
    call('ZREM', KEYS[2], ARGV[3])
    -- What it was called for goes to the next.
    if waited_for == ARGV[3] then
        if call('PTTL', KEYS[1]) == -2 then
            freed(clock(), ARGV[1])
        elseif not call_first('F') then
            call('DEL', KEYS[2])
        end
        waited_for = first()
    end
end

-- pcall: a key of another type is a stranger's. Any other error is one.
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then
    return value
end
if value == ARGV[2] then
    -- Called before the key is gone, so that the first hears it before it is
    -- told of that: it need not look then.
    if waited_for then
        freed(clock(), ARGV[1], waited_for)
    end
    call('DEL', KEYS[1])
    return 'RELEASED'
elseif value then
    return 'FOREIGN'
else
    return 'MISSING'
end
