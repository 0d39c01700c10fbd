-- INSPECT: says who holds a lock.
--
-- KEYS[1]  the lock
--
-- Returns MISSING (no such key), or an array: the value (nil when it is not a
-- string) and the milliseconds that remain (-1: it never expires).

-- pcall: a key of another type is a stranger's, not an error.
local value = redis.pcall('GET', KEYS[1])
if not value then
    return 'MISSING'
end
if type(value) == 'table' then
    value = false
end
return { value, redis.call('PTTL', KEYS[1]) }
