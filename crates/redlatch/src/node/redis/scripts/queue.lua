-- The queue of clients that wait for a lock, and whose turn it is.
--
-- KEYS[1]  the lock
-- KEYS[2]  the queue, a sorted set of tickets by since when each has waited. A
--          ticket is the channel on which its client is called, # and a number.
--          While a free lock is kept for the first of them, the member '' says
--          until when: its score is that millisecond, negative, so that it
--          stands before all others. A request that the first has parked stands
--          before that, by the score -inf.
--
-- Goes on with functions. The queue never grants anything: it only makes a
-- request wait that comes out of turn. PUBLISH says how many have heard it, so
-- a client that is gone is found out when it is called.
--
-- Numbers that are given to commands are written as text: Redis turns each one
-- into text by way of a double otherwise, which takes longer than most commands.

-- The first, its place, until when the lock is kept for it, what is parked, and
-- who comes after the first, if that is known.
local function first()
    local rows = call('ZRANGE', KEYS[2], '0', '2', 'WITHSCORES')
    local at, parked, kept = 1, nil, nil
    if rows[2] == '-inf' then
        at, parked = 3, rows[1]
    end
    if rows[at] == '' then
        at, kept = at + 2, -rows[at + 1]
    end
    return rows[at], tonumber(rows[at + 1]), kept, parked, rows[at + 2]
end

-- A parked request: its ticket and its token; the last millisecond at which it
-- may be granted; its ballot, 0 for a plain lock; its ttl, and its number.
local function parts(parked)
    local last, ballot, ttl, number, size, rest =
        string.match(parked, '^(%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
    return string.sub(rest, 1, size), string.sub(rest, size + 1), tonumber(last), ballot, ttl, number
end

-- A client that asks anew, or gives up, does not want any more what it had
-- parked. Says what is parked by others.
local function withdraw(parked, ticket, token)
    local its_ticket, its_token = parts(parked)
    if its_ticket == ticket or its_token == token then
        call('ZREM', KEYS[2], parked)
        return nil
    end
    return parked
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

-- Calls the first one that hears it, who may be known; those before it are
-- gone. 'T': the lock is free, and it is its turn. 'F': it is the first now.
local function call_first(news, known)
    local ticket = known or first()
    while ticket and not hears(ticket, news) do
        call('ZREM', KEYS[2], ticket)
        ticket = first()
    end
    if not ticket then
        call('DEL', KEYS[2])
    end
    return ticket
end

-- The lock is free again, or is about to be: it is kept for the first, for its
-- turn of so many milliseconds.
local function freed(now, turn, known)
    if call_first('T', known) then
        keep(now + turn)
    end
end

