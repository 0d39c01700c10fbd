-- FORCE: takes a lock away from whoever holds it, when the ballot is one that
--        could acquire it.
--
-- KEYS[1]  the lock
-- KEYS[2]  the guard (see guard.lua) and the highest ballot granted in each slot
--          (see ballot.lua), which both run before this
-- ARGV[1]  the lock's slot
-- ARGV[2]  the ballot
-- ARGV[3]  the guard as expected; not given when it is off
-- ARGV[4]  the longest ttl; not given then
--
-- Returns RELEASED, MISSING (no such key), an array: LOW with the ballot to
-- exceed and the clock; or what the others return. The slot is raised and
-- marked, so that nothing of the lease that is still on its way is let in again.

if ballot <= seen then
    return { 'LOW', seen, now }
end
call('HSET', fence, ARGV[1], ARGV[2], 'f' .. ARGV[1], ARGV[2])
if call('DEL', KEYS[1]) == 1 then
    return 'RELEASED'
else
    return 'MISSING'
end
