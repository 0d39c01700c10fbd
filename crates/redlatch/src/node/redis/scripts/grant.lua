-- ACQUIRE and REJOIN when nobody has the lock.
--
-- Runs after acquire.lua, which see for KEYS and ARGV, and turn.lua.

if born and (call('HGET', KEYS[3], 'f' .. ARGV[1]) or 0) + 0 > born then
    return 'FORCED'
elseif ballot <= seen then
    withdraw()
    return { 'LOW', seen, now }
end
local waited_for = head()
-- A lease that joins again asks nobody: it was its turn all the time.
if waited_for and waited_for ~= ticket and not born and
    yields(ticket, since, turn) then
    if ticket == '' then
        return 'KEPT'
    end
    local first = join(ticket, since, request())
    return { 'QUEUED', first == ticket and 1 or 0 }
end
call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])
if KEYS[3] then
    call('HSET', KEYS[3], ARGV[1], ARGV[2])
end
if waited_for then
    granted(ticket, KEYS[3] and ARGV[2] or '0', turn)
end
return 'GRANTED'
