-- Charges what was spent. ARGV: given time, sweep, id, kind (nothing, reserved, actual), tokens,
-- micro-USD. Returns whether there was such a reservation, and now.
local now = clock()
sweep(now, ARGV[2])
local record = open(ARGV[3], now)
if not record then return { 0, now } end
settle(ARGV[3], record,
  { kind = ARGV[4], tokens = tonumber(ARGV[5]), usd = tonumber(ARGV[6]) }, now)
return { 1, now }
