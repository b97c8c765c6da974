-- Ends reservations whose calls are lost, as their time's end would. ARGV: given time, sweep, ids.
-- Returns how many were open, and now.
local now, count = clock(), 0
sweep(now, ARGV[2])
for i = 3, #ARGV do
  local record = redis.call('HGET', KEYS[1], ARGV[i])
  if record then
    expire(ARGV[i], record, now)
    count = count + 1
  end
end
return { count, now }
