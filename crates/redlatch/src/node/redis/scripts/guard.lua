-- CHECK: the restart guard, in front of ACQUIRE, REJOIN, EXTEND and FORCE.
--
-- Its keys and arguments stand elsewhere in each of them, who names them:
--   fence     the key of the guard, a hash, which has the ballots of all slots too:
--             whoever deletes those deletes the guard
--   slot      the lock's slot, for those who need its ballot
--   expected  the guard as the client expects it: the run of the server that it
--             knows it is connected to, or '', the longest ttl, and the deployment,
--             with a space between them; '' or nil when the guard is off
--   longest   the longest ttl that a node is to allow when it begins
--
-- Returns { QUARANTINED, milliseconds left } or { MISMATCH, deployment }, or
-- goes on with:
--   time, now    this server's clock, and in milliseconds (TIME is read once)
--   floor        above every ballot that this node may have forgotten
--   max_ttl      the longest ttl allowed, or nil
--   slot_ballot  the highest ballot that was granted in the slot, as it is stored
--   call         redis.call, which is looked up once
--   tolerance    how many milliseconds a ballot may be ahead of the clock

local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local floor, max_ttl, tolerance, slot_ballot = 0, nil, 10000, nil

if expected and expected ~= '' then
    local noted = slot and call('HMGET', fence, 'guard', 'floor', slot) or
        call('HMGET', fence, 'guard', 'floor')
    slot_ballot = noted[3]
    floor = (noted[2] or 0) + 0
    max_ttl = longest + 0
    -- Mostly all is as expected, and the last quarantine is over: the floor is
    -- not below the ballot of when it ends.
    if noted[1] ~= expected or not noted[2] or floor > now * 1024 then
        local run, deployment = string.match(expected, '^(%S*) %d+ (.*)$')
        local its_run, its_max_ttl, its_deployment =
            string.match(noted[1] or '', '^(%S*) (%d+) (.*)$')
        local times = call('HMGET', fence, 'armed', 'quarantine')
        local armed, quarantine = tonumber(times[1] or 0), tonumber(times[2] or 0)
        local this_run = its_run
        if its_run ~= run or not noted[2] then
            -- Only now ask which run this is: INFO is slow.
            local info = call('INFO', 'server') .. call('INFO', 'replication')
            this_run = string.match(info, 'run_id:(%x+)') ..
                string.match(info, 'master_replid:(%x+)')
        end
        if its_run ~= this_run or not noted[2] then
            -- Restarted, emptied, rolled back or promoted: it may have forgotten
            -- leases that are still valid. What it still knows of itself counts.
            its_deployment = its_deployment or deployment
            its_max_ttl = its_max_ttl or longest
            quarantine = its_max_ttl + math.ceil(its_max_ttl / 10) + 1000
            armed = now + quarantine
            floor = math.max(armed * 1024, floor)
            call('HSET', fence, 'guard', this_run .. ' ' .. its_max_ttl .. ' ' .. its_deployment,
                'floor', string.format('%.0f', floor),
                'armed', string.format('%.0f', armed), 'quarantine', quarantine)
        end
        if its_deployment ~= deployment then
            return { 'MISMATCH', its_deployment }
        end
        max_ttl = tonumber(its_max_ttl)
        if armed - now > quarantine then
            -- This server's clock was stepped back: it must not wait for ever.
            armed = now + quarantine
            call('HSET', fence, 'armed', string.format('%.0f', armed))
        end
        if now < armed then
            return { 'QUARANTINED', armed - now }
        end
    end
    if max_ttl < 20000 then
        -- Half a quarantine, and ten seconds at most.
        tolerance = math.min(math.floor((max_ttl + math.ceil(max_ttl / 10) + 1000) / 2), 10000)
    end
else
    slot_ballot = call('HGET', fence, slot)
end

