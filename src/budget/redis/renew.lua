-- Keeps reservations alive, and ends those that nobody keeps. ARGV: given time, sweep, TTL (µs),
-- ids. Returns how many were open, and now.
local now = clock()
sweep(now, ARGV[2])
local ends, count = digits(now + tonumber(ARGV[3])), 0
for i = 4, #ARGV do
  if open(ARGV[i], now) then
    redis.call('ZADD', KEYS[2], ends, ARGV[i])
    count = count + 1
  end
end
keep()
return { count, now }
