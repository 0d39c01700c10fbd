-- INIT: looks after the restart guard, for an administrator.
--
-- KEYS[1]  the guard, and the highest ballot granted in each slot
-- ARGV[1]  read | fresh (grant at once) | reconfigure (join another deployment)
-- ARGV[2]  the deployment
-- ARGV[3]  the longest ttl that the node is to allow
--
-- Returns an array: GUARD, the deployment and the milliseconds of quarantine
-- left (GUARD alone when there is no guard); or MISMATCH and the deployment.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local noted = redis.call('HMGET', KEYS[1], 'guard', 'floor', 'armed')
local its_run, max_ttl, deployment = string.match(noted[1] or '', '^(%S*) (%d+) (.*)$')
local floor, armed = tonumber(noted[2] or 0), tonumber(noted[3] or 0)
local info = redis.call('INFO', 'server') .. redis.call('INFO', 'replication')
local run = string.match(info, 'run_id:(%x+)') .. string.match(info, 'master_replid:(%x+)')

local quarantine
if ARGV[1] == 'fresh' then
    if deployment and deployment ~= ARGV[2] then
        return { 'MISMATCH', deployment }
    end
    if its_run ~= run or armed > now then
        quarantine = 0
        floor = 0
    end
elseif ARGV[1] == 'reconfigure' then
    -- Leases of either deployment must have run out.
    local longest = math.max(tonumber(max_ttl or 0), tonumber(ARGV[3]))
    quarantine = longest + math.ceil(longest / 10) + 1000
end
if quarantine then
    its_run, deployment, max_ttl = run, ARGV[2], ARGV[3]
    armed = now + quarantine
    floor = math.max(armed * 1024, floor)
    redis.call('HSET', KEYS[1], 'guard', run .. ' ' .. max_ttl .. ' ' .. deployment,
        'floor', string.format('%.0f', floor),
        'armed', string.format('%.0f', armed), 'quarantine', quarantine)
end

if not its_run then
    return { 'GUARD' }
end
local left = math.max(armed - now, 0)
if its_run ~= run then
    -- It will find out with the next request.
    left = max_ttl + math.ceil(max_ttl / 10) + 1000
end
return { 'GUARD', deployment, left }
