-- BUNDLE: several ACQUIREs, RELEASEs and EXTENDs in one go, each as it mostly goes.
--
-- KEYS[1]  the guard, and the highest ballot granted in each slot
-- KEYS     then the locks of the ACQUIREs, of the RELEASEs and of the EXTENDs, in this
--          order; then the queues of all but the EXTENDs', in the same
-- ARGV[1]  the guard as expected (see guard.lua), or '' when it is off
-- ARGV[2]  the longest ttl, or ''
-- ARGV[3]  how many ACQUIREs there are
-- ARGV[4]  how many RELEASEs
-- ARGV     then the tokens of all, in the order of the locks; the ttls of the ACQUIREs
--          and of the EXTENDs; the slots of the ACQUIREs; and their ballots
--
-- An ACQUIRE here has no ticket, and a RELEASE none to give up and no other ballots
-- than the one that its lease was granted by. Of locks of one slot there is one
-- ACQUIRE at most, and then nothing else: so what one request does is nothing to the
-- others, and in which order they are done makes no difference.
--
-- Returns an array with the answer to each, the one that its own script gives (see
-- acquire.lua, release.lua and extend.lua); or false where something is not as it
-- mostly is. Nothing was done then, and it must be asked by itself. After an error
-- all may be: what was granted is granted again, what was extended extended, and
-- nothing was released, since that comes last.
--
-- Runs after about.lua. Commands that work on many keys are what is gained here: to be called costs a command
-- more than to look at a key.

local call = redis.call
local expected = ARGV[1]
local acquires, releases = ARGV[3] + 0, ARGV[4] + 0
local with_queue = acquires + releases
local locks = #KEYS - 1 - with_queue
local extends = locks - with_queue
local ttls = 4 + locks
local slots = ttls + acquires + extends
local ballots = slots + acquires
local answers = {}

-- Mostly nobody waits for any of them.
local nobody_waits = with_queue == 0 or call('EXISTS', unpack(KEYS, 2 + locks)) == 0
local function is_wanted(at)
    return not nobody_waits and call('PTTL', KEYS[1 + locks + at]) ~= -2
end

-- What the node has noted: the guard and the floor, where there is a guard, and the
-- ballots of the slots.
local noted, first, floor, longest, now, limit
local is_armed = true
if acquires > 0 or extends > 0 and expected ~= '' then
    local time = call('TIME')
    now = time[1] * 1000 + math.floor(time[2] / 1000)
    local tolerance = 10000
    if expected == '' then
        noted, first, floor = call('HMGET', KEYS[1], unpack(ARGV, slots + 1, ballots)), 0, 0
    else
        noted = call('HMGET', KEYS[1], 'guard', 'floor', unpack(ARGV, slots + 1, ballots))
        first, floor, longest = 2, (noted[2] or 0) + 0, ARGV[2] + 0
        is_armed = noted[1] == expected and noted[2] and floor <= now * 1024
        if longest < 20000 then
            -- Half a quarantine, and ten seconds at most.
            tolerance = math.min(math.floor((longest + math.ceil(longest / 10) + 1000) / 2), 10000)
        end
    end
    limit = (now + tolerance) * 1024
    -- All that can be wrong with them is found before anything is written.
    for at = first + 1, first + acquires do
        noted[at] = (noted[at] or 0) + 0
    end
end

-- ACQUIREs come first: a server that is out of memory refuses a script its first write
-- only, and must refuse these.
local raised, count, is_new = {}, 0, false
for at = 1, acquires do
    local slot_ballot = noted[first + at]
    local seen, ballot = math.max(slot_ballot, floor), ARGV[ballots + at] + 0
    local lock, ttl, answer = KEYS[1 + at], ARGV[ttls + at], false
    if is_armed and seen <= limit and ballot <= limit and not (longest and ttl + 0 > longest) then
        if ballot > seen and not is_wanted(at) and
            call('SET', lock, ARGV[4 + at], 'NX', 'PX', ttl) then
            raised[count + 1], raised[count + 2] = ARGV[slots + at], ARGV[ballots + at]
            count = count + 2
            is_new = is_new or slot_ballot == 0
            answer = 'GRANTED'
        else
            -- pcall: a key of another type is a stranger's. What is long is left to the
            -- script for one, so that no answer is as long as all of them.
            local value = redis.pcall('GET', lock)
            if type(value) == 'string' and value ~= ARGV[4 + at] and #value <= 1024 then
                answer = { 'HELD', value, call('PTTL', lock), slot_ballot }
            elseif not value and ballot <= seen then
                answer = { 'LOW', seen, now }
            end
        end
    end
    answers[at] = answer
end
if is_new then
    raised[count + 1], raised[count + 2] = 'about', about
end
if count > 0 then
    call('HSET', KEYS[1], unpack(raised))
end

if acquires < locks then
    -- A key of another type has no value here.
    local values = call('MGET', unpack(KEYS, 2 + acquires, 1 + locks))
    for at = with_queue + 1, locks do
        local is_ours = is_armed and values[at - acquires] == ARGV[4 + at]
        if is_ours then
            local ttl = ARGV[ttls + at - releases]
            local left = call('PTTL', KEYS[1 + at])
            if left >= 0 and left < ttl + 0 then
                call('PEXPIRE', KEYS[1 + at], ttl)
            end
        end
        answers[at] = is_ours and 'EXTENDED'
    end
    local gone, count = {}, 0
    for at = acquires + 1, with_queue do
        local is_ours = values[at - acquires] == ARGV[4 + at] and not is_wanted(at)
        if is_ours then
            count = count + 1
            gone[count] = KEYS[1 + at]
        end
        answers[at] = is_ours and 'RELEASED'
    end
    if count > 0 then
        call('DEL', unpack(gone))
    end
end
return answers
