-- A place for a client that has to wait.
--
-- Runs after queue.lua. Needs: now, time.
--   ticket  that of the client that asks; '' when it won't wait
--   since   since when it has waited, or '' when this server's clock says it better

-- Where a client stands that has waited since then.
local function place_of(since)
    local newest = now * 1024
    if since == '' then
        return newest + time[2] % 1000
    end
    -- A wrong clock is worth two seconds at most.
    return math.min(math.max(since + 0, newest - 2000 * 1024), newest)
end

-- Notes a ticket at this place, and what is parked with it. Says how many of them
-- are new.
local function note(how, place, ticket, parked)
    local text = string.format('%.0f', place)
    return call('ZADD', KEYS[2], how, text, ticket, text, parked or ticket)
end

-- Notes that the client waits, and what it parks, if anything. Says who is the first,
-- and whether the lock is kept for it.
local function join(ticket, since, parked)
    local place = place_of(since)
    if note('NX', place, ticket, parked) < (parked and 2 or 1) then
        -- It has waited before, and what was noted now stands at the wrong place.
        call('ZREM', KEYS[2], parked or ' ')
        call('ZREM', KEYS[2], parked_with(ticket) or ' ')
        -- It keeps its place, unless that is in the future, because this server's
        -- clock was stepped back: all who come would go before it.
        place = math.min(place, call('ZSCORE', KEYS[2], ticket) + 0)
        note('CH', place, ticket, parked)
    end
    -- Those who wait ask again every few seconds.
    if call('PTTL', KEYS[2]) < 30000 then
        call('PEXPIRE', KEYS[2], '60000')
    end
    return head()
end

