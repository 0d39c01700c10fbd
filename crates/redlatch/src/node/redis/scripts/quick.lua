-- ACQUIRE as it mostly goes: nobody has the lock, and nobody waits for it.
--
-- Runs after ballot.lua, or plain.lua; see acquire.lua for KEYS and ARGV. Whatever
-- else there may be is left to the files that follow. What they need is made
-- there, and so costs nothing here; but for
--   queue_left  for how many milliseconds there will be a queue; -2 for none

if max_ttl and tonumber(ARGV[4]) > max_ttl then
    return { 'TTL_TOO_LONG', max_ttl }
end
local queue_left = call('PTTL', KEYS[2])
if not ARGV[11] and ballot > seen and queue_left == -2 and
    call('SET', KEYS[1], ARGV[3], 'NX', 'PX', ARGV[4]) then
    if KEYS[3] then
        call('HSET', KEYS[3], ARGV[1], ARGV[2])
    end
    return 'GRANTED'
end

