-- A plain lock, which has no ballot and no guard: every ballot is high enough.
--
-- Goes on with what guard.lua and ballot.lua would have set.

local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ballot, slot_ballot, seen = 1, 0, 0

