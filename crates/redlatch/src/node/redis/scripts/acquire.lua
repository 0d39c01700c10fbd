-- ACQUIRE: grants a lock to a ballot that is higher than any before it.
-- REJOIN:  the same for a lease that this node has lost, while a quorum of
--          others has just confirmed it.
--
-- KEYS[1]  the lock
-- KEYS[2]  the highest ballot granted in each slot, a hash; fields f<slot> say
--          where a lock was taken away by force
-- KEYS[3]  the guard (see guard.lua, which runs before this)
-- ARGV[1]  the token that names the lease
-- ARGV[2]  the ttl in milliseconds
-- ARGV[3]  the lock's slot
-- ARGV[4]  the ballot
-- ARGV[5]  REJOIN: the ballot that the lease was won with; ACQUIRE: ''
--
-- Returns GRANTED, FORCED, or an array: HELD with the value, the milliseconds
-- that remain and the slot's ballot; LOW with the ballot to exceed and the
-- clock; FUTURE with the clock; CLOCK_BEHIND with the milliseconds;
-- TTL_TOO_LONG with the longest.

if max_ttl and tonumber(ARGV[2]) > max_ttl then
    return { 'TTL_TOO_LONG', max_ttl }
end
local ballot = tonumber(ARGV[4])
local slot_ballot = tonumber(call('HGET', KEYS[2], ARGV[3]) or 0)
local seen = slot_ballot
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
local forced = ARGV[5] ~= '' and
    tonumber(call('HGET', KEYS[2], 'f' .. ARGV[3]) or 0) > tonumber(ARGV[5])
if ballot > seen and not forced and
    call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
    call('HSET', KEYS[2], ARGV[3], ARGV[4])
    return 'GRANTED'
end

-- pcall: a key of another type is a stranger's. Any other error is one.
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then
    return value
end
if value == ARGV[1] then
    -- A resend, or proposed again with a higher ballot. The lease is not
    -- lengthened: its holder counts from the first request.
    if ballot > slot_ballot then
        call('HSET', KEYS[2], ARGV[3], ARGV[4])
    end
    return 'GRANTED'
elseif value then
    if type(value) == 'table' then
        value = false
    end
    return { 'HELD', value, call('PTTL', KEYS[1]), slot_ballot }
elseif forced then
    return 'FORCED'
else
    return { 'LOW', seen, now }
end
