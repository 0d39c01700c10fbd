-- Holds a ballot against what this node has seen, and against its clock.
--
-- ARGV[1]  the lock's slot
-- ARGV[2]  the ballot
--
-- Runs after guard.lua. Returns { CLOCK_BEHIND, milliseconds }, when the clock
-- is behind what the node has seen, or { FUTURE, clock }, when the ballot is too
-- far ahead of it, or goes on with:
--   ballot       as a number
--   slot_ballot  the highest that was granted in the slot, as a number
--   seen         what the ballot must exceed: that, or the floor

local ballot = ARGV[2] + 0
slot_ballot = (slot_ballot or 0) + 0
local seen = slot_ballot
if floor > seen then
    seen = floor
end
local limit = (now + tolerance) * 1024
if seen > limit then
    return { 'CLOCK_BEHIND', math.floor(seen / 1024) - (now + tolerance) }
end
if ballot > limit then
    return { 'FUTURE', now }
end

