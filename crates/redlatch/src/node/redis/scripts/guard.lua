-- CHECK: the restart guard, in front of ACQUIRE, REJOIN and EXTEND.
--
-- KEYS[4]        the guard; not given when it is off
-- ARGV[last - 2] the run of the server that the client knows it is connected to, or ''
-- ARGV[last - 1] the deployment
-- ARGV[last]     the longest ttl that a node is to allow when it begins
--
-- Returns { QUARANTINED, milliseconds left } or { MISMATCH, deployment }, or
-- goes on with:
--   time, now  this server's clock, and in milliseconds (TIME is read once)
--   floor      above every ballot that this node may have forgotten
--   max_ttl    the longest ttl allowed, or nil
--   call       redis.call, which is looked up once
--   tolerance  how many milliseconds a ballot may be ahead of the clock

local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local floor, max_ttl, tolerance = 0, nil, 10000

if KEYS[4] then
    local hint, deployment = ARGV[#ARGV - 2], ARGV[#ARGV - 1]
    local guard = call('HMGET', KEYS[4],
        'run', 'deployment', 'max_ttl', 'floor', 'armed', 'quarantine')
    if guard[1] ~= hint then
        -- Only now ask which run this is: INFO is slow.
        local info = call('INFO', 'server') .. call('INFO', 'replication')
        local run = string.match(info, 'run_id:(%x+)') .. string.match(info, 'master_replid:(%x+)')
        if guard[1] ~= run then
            -- Restarted, emptied, rolled back or promoted: it may have forgotten
            -- leases that are still valid. What it still knows of itself counts.
            guard[2] = guard[2] or deployment
            guard[3] = guard[3] or ARGV[#ARGV]
            guard[6] = guard[3] + math.ceil(guard[3] / 10) + 1000
            guard[5] = now + guard[6]
            guard[4] = math.max(guard[5] * 1024, tonumber(guard[4] or 0))
            call('HSET', KEYS[4], 'run', run, 'deployment', guard[2], 'max_ttl', guard[3],
                'floor', string.format('%.0f', guard[4]),
                'armed', string.format('%.0f', guard[5]), 'quarantine', guard[6])
        end
    end
    if guard[2] ~= deployment then
        return { 'MISMATCH', guard[2] }
    end
    max_ttl = tonumber(guard[3])
    floor = tonumber(guard[4])
    local armed = tonumber(guard[5])
    if armed - now > tonumber(guard[6]) then
        -- This server's clock was stepped back: it must not wait for ever.
        armed = now + guard[6]
        call('HSET', KEYS[4], 'armed', string.format('%.0f', armed))
    end
    if now < armed then
        return { 'QUARANTINED', armed - now }
    end
    tolerance = math.min(math.floor((max_ttl + math.ceil(max_ttl / 10) + 1000) / 2), 10000)
end
