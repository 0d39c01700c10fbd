-- Whether a lock that is free may be taken.
--
-- Runs after join.lua, which see for ticket and since, and call.lua.

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
            (since ~= '' and place_of(since) < call('ZSCORE', KEYS[2], ahead) + 0) then
            return false
        end
        if in_turn then
            return true
        end
        if not kept and publish(ahead, 'T') ~= 0 then
            call('ZADD', KEYS[2], string.format('-%.0f', now + turn), '')
            return true
        end
        kept = false
        strike(ahead)
        ahead = head()
    end
    call('DEL', KEYS[2])
    return false
end

-- The lock was granted by this ballot, to the client if it waited: the next one is
-- the first now.
local function granted(ticket, ballot, turn)
    call('ZREM', KEYS[2], ticket, '', ticket ~= '' and parked_with(ticket) or '')
    local known, request = first()
    call_next(ballot, now, turn, known, request)
end
