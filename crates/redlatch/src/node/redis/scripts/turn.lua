-- Whether a lock that is free may be taken, and a place for who may not.
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
    return math.min(math.max(tonumber(since), newest - 2000 * 1024), newest)
end

-- Whether the lock, which is free, is kept for somebody else. Whoever has let
-- its turn pass, or is gone, loses its place.
local function yields(ticket, since, turn)
    local ahead, kept = head()
    local last = kept and -call('ZSCORE', KEYS[2], '')
    -- One too far away was set before this server's clock was stepped back.
    local in_turn = kept and now < last and last <= now + turn
    while ahead do
        -- Its place may never have been noted here, or have been lost.
        if ahead == ticket or
            (since ~= '' and place_of(since) < tonumber(call('ZSCORE', KEYS[2], ahead))) then
            return false
        end
        if in_turn then
            return true
        end
        if not kept and hears(ahead, 'T') then
            keep(now + turn)
            return true
        end
        kept = false
        strike(ahead)
        ahead = head()
    end
    call('DEL', KEYS[2])
    return false
end

-- Notes a ticket at this place, and what is parked with it. Says how many of them
-- are new.
local function note(how, place, ticket, parked)
    local text = string.format('%.0f', place)
    return call('ZADD', KEYS[2], how, text, ticket, text, parked or ticket)
end

-- Notes that the client waits, and what it parks, if anything. Says 1 when it is the
-- first, else 0. The other is who was the first until now; if it is the client itself,
-- it has nothing parked any more.
local function join(ticket, since, parked, other)
    local place = place_of(since)
    local is_noted = ticket == other
    if not is_noted and note('NX', place, ticket, parked) < (parked and 2 or 1) then
        -- It has waited before, and what was noted now stands at the wrong place.
        is_noted = true
        call('ZREM', KEYS[2], parked or ' ')
        call('ZREM', KEYS[2], parked_with(ticket) or ' ')
    end
    if is_noted then
        -- It keeps its place, unless that is in the future, because this server's
        -- clock was stepped back: all who come would go before it.
        place = math.min(place, tonumber(call('ZSCORE', KEYS[2], ticket)))
        note('CH', place, ticket, parked)
    end
    -- Those who wait ask again every few seconds.
    if not other or call('PTTL', KEYS[2]) < 30000 then
        call('PEXPIRE', KEYS[2], '60000')
    end
    return head() == ticket and 1 or 0
end

-- The lock was granted by this ballot, to the client if it waited: the next one is
-- the first now.
local function granted(ticket, ballot, turn)
    call('ZREM', KEYS[2], ticket, '', ticket ~= '' and parked_with(ticket) or '')
    local known, request = first()
    call_next(ballot, now, turn, known, request)
end
