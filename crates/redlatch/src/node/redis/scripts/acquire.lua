-- ACQUIRE: grants a lock to a ballot that is higher than any before it.
-- REJOIN:  the same for a lease that this node has lost, while a quorum of
--          others has just confirmed it.
--
-- KEYS[1]  the lock
-- KEYS[2]  the highest ballot granted in each slot (see ballot.lua, which runs
--          before this); fields f<slot> say by which ballot a lock was taken
--          away by force
-- KEYS[3]  the guard (see guard.lua, which runs before that)
-- ARGV[1]  the lock's slot
-- ARGV[2]  the ballot
-- ARGV[3]  the token that names the lease
-- ARGV[4]  the ttl in milliseconds
-- ARGV[5]  REJOIN: the ballot that the lease was won with; ACQUIRE: ''
--
-- Returns GRANTED, FORCED, or an array: HELD with the value, the milliseconds
-- that remain and the slot's ballot; LOW with the ballot to exceed and the
-- clock; TTL_TOO_LONG with the longest; or what the others return.

if max_ttl and tonumber(ARGV[4]) > max_ttl then
    return { 'TTL_TOO_LONG', max_ttl }
end
local forced = ARGV[5] ~= '' and
    tonumber(call('HGET', KEYS[2], 'f' .. ARGV[1]) or 0) > tonumber(ARGV[5])
if ballot > seen and not forced and
    call('SET', KEYS[1], ARGV[3], 'NX', 'PX', ARGV[4]) then
    call('HSET', KEYS[2], ARGV[1], ARGV[2])
    return 'GRANTED'
end

-- pcall: a key of another type is a stranger's. Any other error is one.
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then
    return value
end
if value == ARGV[3] then
    -- A resend, or proposed again with a higher ballot. The lease is not
    -- lengthened: its holder counts from the first request.
    if ballot > slot_ballot then
        call('HSET', KEYS[2], ARGV[1], ARGV[2])
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
