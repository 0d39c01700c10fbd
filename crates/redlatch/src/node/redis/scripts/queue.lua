-- The queue of clients that wait for a lock.
--
-- KEYS[1]  the lock
-- KEYS[2]  the queue, a sorted set of tickets by since when each has waited. A
--          ticket is the channel on which its client is called, # and a number.
--          A request that was parked with it has the same score and so stands
--          right behind it: the ticket, a space, and the request. While a free
--          lock is kept for the first, the member '' says until when: its score
--          is that millisecond, negative, so that it stands before all others.
--
-- Goes on with functions. What only some need is made by the files that come after
-- those who don't need it: even to make a function costs something.
--
-- Numbers that are given to commands are written as text: Redis turns each one
-- into text by way of a double otherwise, which takes longer than most commands. A
-- text is made a number by adding 0: tonumber reads it twice.

-- Whether a member is what was parked with this ticket. Every string that a script
-- makes costs as much as a small command: none is made here.
local function belongs(member, ticket)
    return string.byte(member, #ticket + 1) == 32 and
        string.find(member, ticket, 1, true) == 1
end

-- The first, and whether the lock is kept for it.
local function head()
    local ticket = call('ZRANGE', KEYS[2], '0', '0')[1]
    if ticket == '' then
        return call('ZRANGE', KEYS[2], '1', '1')[1], true
    end
    return ticket, false
end

-- What one who need not be the first has parked, if anything.
local function parked_with(ticket)
    local place = call('ZSCORE', KEYS[2], ticket)
    if place then
        for _, member in ipairs(call('ZRANGE', KEYS[2], place, place, 'BYSCORE')) do
            if belongs(member, ticket) then
                return member
            end
        end
    end
end

