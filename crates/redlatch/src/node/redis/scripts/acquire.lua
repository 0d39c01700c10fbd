-- ACQUIRE: grants a lock to a ballot that is higher than any before it.
-- REJOIN:  the same for a lease that this node has lost, while a quorum of
--          others has just confirmed it.
--
-- KEYS[1]  the lock
-- KEYS[2]  the queue (see quick.lua, queue.lua and join.lua, which run before this)
-- KEYS[3]  the guard (see guard.lua) and the highest ballot granted in each slot
--          (see ballot.lua), which both run before those; fields f<slot> say by
--          which ballot a lock was taken away by force. Not given for a plain
--          lock (see plain.lua)
-- ARGV[1]  the lock's slot
-- ARGV[2]  the ballot
-- ARGV[3]  the token that names the lease
-- ARGV[4]  the ttl in milliseconds
-- ARGV[5]  the guard as expected, or ''
-- ARGV[6]  the longest ttl, or ''
-- ARGV[7]  a ticket, to wait if it must (see queue.lua); or ''
-- ARGV[8]  since when it has waited, or ''
-- ARGV[9]  the number by which the client is told that this was granted after
--          all, when it may be parked; or ''
-- ARGV[10] REJOIN: the ballot that the lease was won with; or ''
-- ARGV[11] for how many milliseconds a free lock is kept for the first who waits,
--          when it is not 200
--
-- Those that are empty are not given where nothing follows: an argument costs half as
-- much as a small command.
--
-- Returns GRANTED, KEPT (it is free, but somebody else's turn), FORCED, or an
-- array: HELD with the value, the milliseconds that remain and the slot's
-- ballot; QUEUED with 1 for the first in the queue or 0, and, when the lock is
-- not free, the same; LOW with the ballot to exceed and the clock; TTL_TOO_LONG
-- with the longest; or what the others return. Goes on, when the lock
-- is free, with call.lua, turn.lua and grant.lua.

local ticket, since, number = ARGV[7] or '', ARGV[8] or '', ARGV[9] or ''
local born, turn = tonumber(ARGV[10] or ''), tonumber(ARGV[11] or '') or 200
-- What was parked with this ticket is not wanted any more.
local function withdraw()
    local parked = ticket ~= '' and parked_with(ticket)
    if parked then
        call('ZREM', KEYS[2], parked)
    end
end
-- What is to be parked, for a quarter of a turn.
local function request()
    if number ~= '' and ballot > seen then
        local last = string.format('%.0f', now + math.floor(turn / 4))
        return ticket .. ' ' .. last .. ' ' .. (KEYS[3] and ARGV[2] or '0') .. ' ' ..
            ARGV[4] .. ' ' .. number .. ' ' .. ARGV[3]
    end
end
-- pcall: a key of another type is a stranger's. Any other error is one.
local value = redis.pcall('GET', KEYS[1])
if value == ARGV[3] then
    -- A resend, or proposed again with a higher ballot. The lease is not
    -- lengthened: its holder counts from the first request.
    withdraw()
    if KEYS[3] and ballot > slot_ballot then
        call('HSET', KEYS[3], ARGV[1], ARGV[2])
    end
    return 'GRANTED'
elseif value then
    if type(value) == 'table' then
        if not string.find(value.err, 'WRONGTYPE', 1, true) then
            return value
        end
        value = false
    end
    local left = call('PTTL', KEYS[1])
    if ticket == '' then
        return { 'HELD', value, left, slot_ballot }
    end
    local first, kept = join(ticket, since, request())
    if kept then
        -- Whoever took it may know nothing of the queue: the first has not let its
        -- turn pass.
        call('ZREM', KEYS[2], '')
    end
    return { 'QUEUED', first == ticket and 1 or 0, value, left, slot_ballot }
end

