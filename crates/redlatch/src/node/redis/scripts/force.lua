-- FORCE: takes a lock away from whoever holds it.
--
-- KEYS[1]  the lock
-- KEYS[2]  the highest ballot granted in each slot
-- KEYS[3]  the guard
-- ARGV[1]  the lock's slot
--
-- Returns RELEASED or MISSING (no such key). The slot is raised above all that
-- was granted there, and marked, so that a lease of before can't rejoin.

local seen = tonumber(redis.call('HGET', KEYS[2], ARGV[1]) or 0)
local floor = tonumber(redis.call('HGET', KEYS[3], 'floor') or 0)
local above = string.format('%.0f', math.max(seen, floor) + 1)
redis.call('HSET', KEYS[2], ARGV[1], above, 'f' .. ARGV[1], above)
if redis.call('DEL', KEYS[1]) == 1 then
    return 'RELEASED'
else
    return 'MISSING'
end
