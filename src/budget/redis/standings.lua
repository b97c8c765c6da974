-- How buckets stand. KEYS[3…] are the buckets; ARGV: given time, sweep.
-- Returns 0, now, and 7 numbers for each bucket.
local now = clock()
sweep(now, ARGV[2])
local reply = { 0, now }
local values = #KEYS > 2 and redis.call('MGET', unpack(KEYS, 3)) or {}
for i = 1, #KEYS - 2 do
  for _, number in ipairs(parse(values[i])) do reply[#reply + 1] = number end
end
return reply
