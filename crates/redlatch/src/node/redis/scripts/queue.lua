-- The queue of clients that wait for a lock, and whose turn it is.
--
-- KEYS[1]  the lock
-- KEYS[2]  the queue, a sorted set of tickets by since when each has waited. A
--          ticket is the channel on which its client is called, # and a number.
--          A request that was parked with it has the same score and so stands
--          right behind it: the ticket, a space, and the request. While a free
--          lock is kept for the first, the member '' says until when: its score
--          is that millisecond, negative, so that it stands before all others.
--
-- Goes on with functions. The queue never grants anything: it only makes a
-- request wait that comes out of turn. PUBLISH says how many have heard it, so
-- a client that is gone is found out when it is called.
--
-- Numbers that are given to commands are written as text: Redis turns each one
-- into text by way of a double otherwise, which takes longer than most commands.

-- Whether a member is what was parked with this ticket. Every string that a script
-- makes costs as much as a small command: none is made here.
local function belongs(member, ticket)
    return string.byte(member, #ticket + 1) == 32 and
        string.find(member, ticket, 1, true) == 1
end

-- The first, and whether the lock is kept for it.
local function head()
    local ticket = call('ZRANGE', KEYS[2], '0', '0')[1]
    if ticket == '' then
        return call('ZRANGE', KEYS[2], '1', '1')[1], true
    end
    return ticket, false
end

-- The first, what it has parked, who comes after it, and what that one has parked.
local function first()
    local members = call('ZRANGE', KEYS[2], '0', '4')
    local at = members[1] == '' and 2 or 1
    local ticket, parked, second = members[at], nil, members[at + 1]
    if second and belongs(second, ticket) then
        at, parked, second = at + 1, second, members[at + 2]
    end
    local request = members[at + 2]
    return ticket, parked, second, request and belongs(request, second) and request or nil
end

-- What was parked with a ticket: the last millisecond at which it may be granted;
-- its ballot, 0 for a plain lock; its ttl, its number, and its token.
local function parts(parked, ticket)
    local last, ballot, ttl, number, token =
        string.match(parked, '^(%d+) (%d+) (%d+) (%d+) (.*)$', #ticket + 2)
    return tonumber(last), ballot, ttl, number, token
end

-- What one who need not be the first has parked, if anything.
local function parked_with(ticket)
    local place = call('ZSCORE', KEYS[2], ticket)
    if place then
        for _, member in ipairs(call('ZRANGE', KEYS[2], place, place, 'BYSCORE')) do
            if belongs(member, ticket) then
                return member
            end
        end
    end
end

-- Takes a ticket out of the queue, and what it has parked.
local function strike(ticket)
    call('ZREM', KEYS[2], ticket, parked_with(ticket) or ticket)
end

-- How many have heard it; nil for who may not call.
local function publish(ticket, news)
    local channel = string.match(ticket, '^(.*)#')
    local heard = redis.pcall('PUBLISH', channel, news .. KEYS[1])
    return type(heard) == 'number' and heard or nil
end

-- Who may not call can't tell that nobody hears, and must not take the places
-- of all away. The first looks at the lock itself.
local function hears(ticket, news)
    return publish(ticket, news) ~= 0
end

-- Keeps the free lock for the first, up to this millisecond.
local function keep(last)
    call('ZADD', KEYS[2], string.format('-%.0f', last), '')
end

-- What one is told who is the first now, and has to ask again.
local FIRST = 'F9007199254740991 '

-- Calls the first one that hears it, who may be known; those before it are
-- gone. 'T': the lock is free, and it is its turn. 'F', a ballot and a space: it
-- is the first now, and what it has parked will do if its ballot is above that.
local function call_first(news, known)
    local ticket = known or head()
    while ticket and not hears(ticket, news) do
        strike(ticket)
        ticket = head()
    end
    if not ticket then
        call('DEL', KEYS[2])
    end
    return ticket
end

-- The lock was granted by this ballot: tells the next one, who may be known, that it
-- is the first now. One whose parked request will do, and for a while yet, is left in
-- peace: most often it has the lock before it had to know.
local function call_next(ballot, now, turn, known, request)
    if request then
        local last, its = string.match(request, '^(%d+) (%d+)', #known + 2)
        local left = last - now
        if left >= math.floor(turn / 8) and left <= math.floor(turn / 4) and
            (its == '0' or tonumber(its) > tonumber(ballot)) then
            return
        end
    end
    call_first('F' .. ballot .. ' ', known)
end

-- The lock is free again, or is about to be: it is kept for the first, for its
-- turn of so many milliseconds.
local function freed(now, turn, known)
    if call_first('T', known) then
        keep(now + turn)
    end
end

