-- EXTEND: lets a lease run for at least ttl from now.
--
-- KEYS[1]  the lock
-- KEYS[2]  the guard (see guard.lua, which runs before this unless it is off)
-- ARGV[1]  the token that names the lease
-- ARGV[2]  the ttl in milliseconds
-- ARGV[3]  the guard as expected; not given when it is off
-- ARGV[4]  the longest ttl; not given then
--
-- Returns EXTENDED, MISSING (no such key) or FOREIGN (another lease, or none).
-- It never creates a key, and never shortens a lease: a request that was held
-- up on its way must not cut a longer lease that was granted since.

-- pcall: a key of another type is a stranger's. Any other error is one.
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then
    return value
end
if value == ARGV[1] then
    local left = redis.call('PTTL', KEYS[1])
    if left >= 0 and left < tonumber(ARGV[2]) then
        redis.call('PEXPIRE', KEYS[1], ARGV[2])
    end
    return 'EXTENDED'
elseif value then
    return 'FOREIGN'
else
    return 'MISSING'
end
