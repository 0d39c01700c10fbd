-- The queue of clients that wait for a lock, and whose turn it is.
--
-- KEYS[1]  the lock
-- KEYS[2]  the queue, a sorted set of tickets by since when each has waited. A
--          ticket is the channel on which its client is called, # and a number.
--          While a free lock is kept for the first of them, the member '' says
--          until when: its score is that millisecond, negative, so that it
--          stands before all others.
--
-- Goes on with functions. The queue never grants anything: it only makes a
-- request wait that comes out of turn. PUBLISH says how many have heard it, so
-- a client that is gone is found out when it is called.

local call = redis.call

-- The first, its place, and until when the lock is kept for it.
local function first()
    local rows = call('ZRANGE', KEYS[2], 0, 1, 'WITHSCORES')
    if rows[1] == '' then
        return rows[3], tonumber(rows[4]), -rows[2]
    end
    return rows[1], tonumber(rows[2])
end

local function hears(ticket, news)
    local channel = string.match(ticket, '^(.*)#')
    -- pcall: who may not call can't tell that nobody hears, and must not take
    -- the places of all away. The first looks at the lock itself.
    local heard = redis.pcall('PUBLISH', channel, news .. KEYS[1])
    return type(heard) ~= 'number' or heard > 0
end

-- Calls the first one that hears it, who may be known; those before it are
-- gone. 'T': the lock is free, and it is its turn. 'F': it is the first now.
local function call_first(news, known)
    local ticket = known or first()
    while ticket and not hears(ticket, news) do
        call('ZREM', KEYS[2], ticket)
        ticket = first()
    end
    return ticket
end

-- The lock is free again, or is about to be: it is kept for the first, for its
-- turn of so many milliseconds.
local function freed(now, turn, known)
    if call_first('T', known) then
        call('ZADD', KEYS[2], -(now + turn), '')
    else
        call('DEL', KEYS[2])
    end
end

