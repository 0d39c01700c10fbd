-- INSPECT: says who holds a lock.
--
-- KEYS[1]  the lock
-- KEYS[2]  the highest ballot granted in each slot
-- ARGV[1]  the lock's slot
--
-- Returns MISSING (no such key), or an array: HOLDER, the value (nil when it is
-- not a string), the milliseconds that remain (-1: it never expires), and the
-- slot's ballot.

-- pcall: a key of another type is a stranger's. Any other error is one.
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then
    return value
end
if not value then
    return 'MISSING'
end
if type(value) == 'table' then
    value = false
end
local ballot = tonumber(redis.call('HGET', KEYS[2], ARGV[1]) or 0)
return { 'HOLDER', value, redis.call('PTTL', KEYS[1]), ballot }
