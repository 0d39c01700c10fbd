-- RELEASE: gives a lock back. Allowed in quarantine: it gives nothing away,
--          unless a request is parked.
--
-- KEYS[1]  the lock
-- KEYS[2]  the queue
-- KEYS[3]  the guard, and the highest ballot granted in each slot; not given for
--          a plain lock
-- ARGV[1]  the token that names the lease
-- ARGV[2]  the lock's slot, the highest ballot that was ever sent for this token,
--          and 'one' when no other was, with a space between them: mostly they are
--          not needed, and one argument costs less than three; '' for a plain lock
-- ARGV[3]  the guard as expected (see guard.lua), or ''
-- ARGV[4]  a ticket that is given up, or ''
-- ARGV[5]  a ticket with which this very request may be parked, or ''
-- ARGV[6]  for how many milliseconds a free lock is kept for the first who waits,
--          when it is not 200
--
-- Those that are empty are not given where nothing follows.
--
-- Returns RELEASED, MISSING (no such key) or FOREIGN (another lease, or none).
-- Reading and deleting are one step: between two the lease could expire and
-- the next holder's lock would be deleted.

local call = redis.call
-- pcall: a key of another type is a stranger's. Any other error is one.
local value = redis.pcall('GET', KEYS[1])
-- As it mostly goes: nobody waits, and the slot has the ballot, since it is the one
-- by which this lease was granted here.
if value == ARGV[1] and call('PTTL', KEYS[2]) == -2 and
    (not KEYS[3] or string.find(ARGV[2], ' one', 1, true)) then
    call('DEL', KEYS[1])
    return 'RELEASED'
end
if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then
    return value
end

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- The ballot of the slot, and the highest that is not too far ahead of the clock.
local slot, seen, limit
if KEYS[3] then
    local max_ttl = (string.match(ARGV[3] or '', '^%S* (%d+)') or 20000) + 0
    -- Half a quarantine, and ten seconds at most.
    local tolerance = math.floor((max_ttl + math.ceil(max_ttl / 10) + 1000) / 2)
    limit = (now + math.min(tolerance, 10000)) * 1024
    local highest
    slot, highest = string.match(ARGV[2], '^(%d+) (%d+)')
    seen = (call('HGET', KEYS[3], slot) or 0) + 0
    -- What of this lease is still on its way must find its ballot too low. One
    -- far ahead of the clock is let be: it would stop the whole slot.
    local ballot = highest + 0
    if ballot > seen and ballot <= limit then
        call('HSET', KEYS[3], slot, highest)
        seen = ballot
    end
end

