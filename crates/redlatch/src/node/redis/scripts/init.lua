-- INIT: looks after the restart guard, for an administrator.
--
-- KEYS[1]  the guard
-- ARGV[1]  read | fresh (grant at once) | reconfigure (join another deployment)
-- ARGV[2]  the deployment
-- ARGV[3]  the longest ttl that the node is to allow
--
-- Returns an array: GUARD, the deployment and the milliseconds of quarantine
-- left (GUARD alone when there is no guard); or MISMATCH and the deployment.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local guard = redis.call('HMGET', KEYS[1], 'run', 'deployment', 'max_ttl', 'floor', 'armed')
local info = redis.call('INFO', 'server') .. redis.call('INFO', 'replication')
local run = string.match(info, 'run_id:(%x+)') .. string.match(info, 'master_replid:(%x+)')

local quarantine
if ARGV[1] == 'fresh' then
    if guard[2] and guard[2] ~= ARGV[2] then
        return { 'MISMATCH', guard[2] }
    end
    if guard[1] ~= run or tonumber(guard[5]) > now then
        quarantine = 0
        guard[4] = 0
    end
elseif ARGV[1] == 'reconfigure' then
    -- Leases of either deployment must have run out.
    local longest = math.max(tonumber(guard[3] or 0), tonumber(ARGV[3]))
    quarantine = longest + math.ceil(longest / 10) + 1000
end
if quarantine then
    local armed = now + quarantine
    guard = { run, ARGV[2], ARGV[3], math.max(armed * 1024, tonumber(guard[4] or 0)), armed }
    redis.call('HSET', KEYS[1], 'run', run, 'deployment', guard[2], 'max_ttl', guard[3],
        'floor', string.format('%.0f', guard[4]),
        'armed', string.format('%.0f', armed), 'quarantine', quarantine)
end

if not guard[1] then
    return { 'GUARD' }
end
local left = math.max(guard[5] - now, 0)
if guard[1] ~= run then
    -- It will find out with the next request.
    left = guard[3] + math.ceil(guard[3] / 10) + 1000
end
return { 'GUARD', guard[2], left }
