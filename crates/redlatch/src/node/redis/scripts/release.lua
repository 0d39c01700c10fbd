-- RELEASE: gives a lock back. Allowed in quarantine: it gives nothing away,
--          unless a request is parked.
--
-- KEYS[1]  the lock
-- KEYS[2]  the queue
-- KEYS[3]  the guard, and the highest ballot granted in each slot; not given for
--          a plain lock
-- ARGV[1]  the token that names the lease
-- ARGV[2]  for how many milliseconds a free lock is kept for the first who waits
-- ARGV[3]  the lock's slot
-- ARGV[4]  the highest ballot that was ever sent for this token
-- ARGV[5]  how many milliseconds a ballot may be ahead of the clock
-- ARGV[6]  'one' when no other ballot was ever sent for this token; else ''
-- ARGV[7]  the guard as expected (see guard.lua), or ''
-- ARGV[8]  a ticket that is given up, or ''
-- ARGV[9]  a ticket with which this very request may be parked, or ''
--
-- Those that are empty are not given where nothing follows.
--
-- Returns RELEASED, MISSING (no such key) or FOREIGN (another lease, or none).
-- Reading and deleting are one step: between two the lease could expire and
-- the next holder's lock would be deleted.

local call = redis.call
-- pcall: a key of another type is a stranger's. Any other error is one.
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then
    return value
end
local time, seen
-- Where only one ballot was sent, it is that by which this lease was granted
-- here: the slot has it.
if KEYS[3] and not (ARGV[6] == 'one' and value == ARGV[1]) then
    -- What of this lease is still on its way must find its ballot too low. One
    -- far ahead of the clock is let be: it would stop the whole slot.
    local ballot = tonumber(ARGV[4])
    seen = tonumber(call('HGET', KEYS[3], ARGV[3]) or 0)
    if ballot > seen then
        time = call('TIME')
        if ballot <= (time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[5]) * 1024 then
            call('HSET', KEYS[3], ARGV[3], ARGV[4])
            seen = ballot
        end
    end
end
-- As it mostly goes: nobody waits.
if call('PTTL', KEYS[2]) == -2 then
    if value == ARGV[1] then
        call('DEL', KEYS[1])
        return 'RELEASED'
    end
    return value and 'FOREIGN' or 'MISSING'
end

