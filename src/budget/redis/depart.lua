-- The call leaves: it is charged from now on. ARGV: given time, sweep, id.
-- Returns whether there was such a reservation, and now.
local now = clock()
sweep(now, ARGV[2])
local record = open(ARGV[3], now)
if not record then return { 0, now } end
redis.call('HSET', KEYS[1], ARGV[3], '1' .. string.sub(record, 2))
return { 1, now }
