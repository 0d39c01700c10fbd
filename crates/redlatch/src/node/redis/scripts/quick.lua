-- ACQUIRE as it mostly goes: nobody has the lock, and nobody waits for it.
--
-- Runs after ballot.lua and about.lua; see acquire.lua for KEYS and ARGV. Whatever else there
-- may be is left to the files that follow. What they need is made there, and so
-- costs nothing here. Who has a ticket, or joins again, is not expected to find it
-- so, and a plain lock without a ticket needs no script.

if max_ttl and ARGV[4] + 0 > max_ttl then
    return { 'TTL_TOO_LONG', max_ttl }
end
if (not ARGV[7] or ARGV[7] .. (ARGV[10] or '') == '') and ballot > seen and call('PTTL', KEYS[2]) == -2 and
    call('SET', KEYS[1], ARGV[3], 'NX', 'PX', ARGV[4]) then
    if slot_ballot > 0 then
        call('HSET', KEYS[3], ARGV[1], ARGV[2])
    else
        call('HSET', KEYS[3], ARGV[1], ARGV[2], 'about', about)
    end
    return 'GRANTED'
end

