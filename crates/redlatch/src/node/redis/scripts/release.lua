-- RELEASE: gives a lock back.
--
-- KEYS[1]  the lock
-- ARGV[1]  the token that names the lease
--
-- Returns RELEASED, MISSING (no such key) or FOREIGN (another lease, or none).
-- Reading and deleting are one step: between two the lease could expire and
-- the next holder's lock would be deleted.

-- pcall: a key of another type is a stranger's, not an error.
local value = redis.pcall('GET', KEYS[1])
if value == ARGV[1] then
    redis.call('DEL', KEYS[1])
    return 'RELEASED'
elseif value then
    return 'FOREIGN'
else
    return 'MISSING'
end
