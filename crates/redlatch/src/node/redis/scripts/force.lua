-- FORCE: takes a lock away from whoever holds it, when the ballot is one that
--        could acquire it.
--
-- KEYS[1]  the lock
-- KEYS[2]  the highest ballot granted in each slot, a hash; fields f<slot> say
--          by which ballot a lock was taken away by force
-- KEYS[3]  the guard (see guard.lua, which runs before this)
-- ARGV[1]  the lock's slot
-- ARGV[2]  the ballot
--
-- Returns RELEASED or MISSING (no such key), or an array: LOW with the ballot
-- to exceed and the clock; FUTURE with the clock; CLOCK_BEHIND with the
-- milliseconds. The slot is raised and marked, so that nothing of the lease
-- that is still on its way is let in again.

local ballot = tonumber(ARGV[2])
local seen = tonumber(call('HGET', KEYS[2], ARGV[1]) or 0)
if floor > seen then
    seen = floor
end
local limit = (now + tolerance) * 1024
if seen > limit then
    return { 'CLOCK_BEHIND', math.floor(seen / 1024) - (now + tolerance) }
end
if ballot > limit then
    return { 'FUTURE', now }
end
if ballot <= seen then
    return { 'LOW', seen, now }
end
call('HSET', KEYS[2], ARGV[1], ARGV[2], 'f' .. ARGV[1], ARGV[2])
if call('DEL', KEYS[1]) == 1 then
    return 'RELEASED'
else
    return 'MISSING'
end
