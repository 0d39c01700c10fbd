-- RELEASE: gives a lock back. Allowed in quarantine: it gives nothing away.
--
-- KEYS[1]  the lock
-- KEYS[2]  the highest ballot granted in each slot; not given for a plain lock
-- ARGV[1]  the token that names the lease
-- ARGV[2]  the lock's slot
-- ARGV[3]  the highest ballot that was ever sent for this token
-- ARGV[4]  how many milliseconds a ballot may be ahead of the clock
--
-- Returns RELEASED, MISSING (no such key) or FOREIGN (another lease, or none).
-- Reading and deleting are one step: between two the lease could expire and
-- the next holder's lock would be deleted.

if KEYS[2] then
    -- What of this lease is still on its way must find its ballot too low. One
    -- far ahead of the clock is let be: it would stop the whole slot.
    local ballot = tonumber(ARGV[3])
    if ballot > tonumber(redis.call('HGET', KEYS[2], ARGV[2]) or 0) then
        local time = redis.call('TIME')
        local now = time[1] * 1000 + math.floor(time[2] / 1000)
        if ballot <= (now + ARGV[4]) * 1024 then
            redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
        end
    end
end

-- pcall: a key of another type is a stranger's. Any other error is one.
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then
    return value
end
if value == ARGV[1] then
    redis.call('DEL', KEYS[1])
    return 'RELEASED'
elseif value then
    return 'FOREIGN'
else
    return 'MISSING'
end
