-- Calls those who wait, and strikes off who is gone.
--
-- Runs after queue.lua. The queue never grants anything: it only makes a request wait
-- that comes out of turn. PUBLISH says how many have heard it, so a client that is
-- gone is found out when it is called.

-- The first, what it has parked, who comes after it, and what that one has parked.
local function first()
    local members = call('ZRANGE', KEYS[2], '0', '4')
    local at = members[1] == '' and 2 or 1
    local ticket, parked, second = members[at], nil, members[at + 1]
    if second and belongs(second, ticket) then
        at, parked, second = at + 1, second, members[at + 2]
    end
    local request = members[at + 2]
    return ticket, parked, second, request and belongs(request, second) and request or nil
end

-- Takes a ticket out of the queue, and what it has parked.
local function strike(ticket)
    call('ZREM', KEYS[2], ticket, parked_with(ticket) or ticket)
end

-- How many have heard it; nil for who may not call: it can't tell that nobody hears,
-- and must not take the places of all away. The first looks at the lock itself.
local function publish(ticket, news)
    local channel = string.match(ticket, '^(.*)#')
    local heard = redis.pcall('PUBLISH', channel, news .. KEYS[1])
    return type(heard) == 'number' and heard or nil
end

-- What one is told who is the first now, and has to ask again.
local FIRST = 'F9007199254740991 '

-- Calls the first one that hears it, who may be known; those before it are
-- gone. 'T': the lock is free, and it is its turn. 'F', a ballot and a space: it
-- is the first now, and what it has parked will do if its ballot is above that.
local function call_first(news, known)
    local ticket = known or head()
    while ticket and publish(ticket, news) == 0 do
        strike(ticket)
        ticket = head()
    end
    if not ticket then
        call('DEL', KEYS[2])
    end
    return ticket
end

-- The lock was granted by this ballot: tells the next one, who may be known, that it
-- is the first now. One whose parked request will do, and for a while yet, is left in
-- peace: most often it has the lock before it had to know.
local function call_next(ballot, now, turn, known, request)
    if request then
        local last, its = string.match(request, '^(%d+) (%d+)', #known + 2)
        local left = last - now
        if left >= math.floor(turn / 8) and left <= math.floor(turn / 4) and
            (its == '0' or its + 0 > ballot + 0) then
            return
        end
    end
    call_first('F' .. ballot .. ' ', known)
end

