-- Takes every charge from its bucket, or nothing. KEYS[3…] are the buckets.
-- ARGV: given time, sweep, id, TTL (µs); for each bucket kind, measure, amount, limit, cost, burst.
-- Returns outcome (0 granted, 1 short, 2 reserved before), now, and 7 numbers for each bucket.
local now = clock()
sweep(now, ARGV[2])
local id, ttl = ARGV[3], tonumber(ARGV[4])
if open(id, now) then return { 2, now } end

local values = #KEYS > 2 and redis.call('MGET', unpack(KEYS, 3)) or {}
-- By key: a call may meet a bucket twice.
local states, entries, has_room = {}, {}, true

local function room(entry, state, burst, price)
  if entry[KIND] == 'rate' then
    return max(state[ARRIVAL], now) + price <= now + burst
  elseif entry[KIND] == 'slots' then
    return state[USED] < entry[LIMIT]
  end
  local rolled = { unpack(state) }
  roll(rolled, entry[KIND], entry[LIMIT], now)
  return rolled[USED] + rolled[DEBT] + entry[AMOUNT] <= entry[LIMIT]
end

for i = 3, #KEYS do
  local at = 5 + (i - 3) * 6
  local key = KEYS[i]
  local entry = { key, ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), 0, 0 }
  entries[i - 2] = entry
  states[key] = states[key] or parse(values[i - 2])
  has_room = room(entry, states[key], tonumber(ARGV[at + 5]), tonumber(ARGV[at + 4])) and has_room
end

local function take(entry, state, price)
  if entry[KIND] == 'rate' then
    state[ARRIVAL] = min(max(state[ARRIVAL], now) + price, TIME_MAX)
    entry[MARK], entry[BASE] = state[ARRIVAL], state[REFUNDED]
  elseif entry[KIND] == 'slots' then
    state[USED] = state[USED] + 1
  else
    roll(state, entry[KIND], entry[LIMIT], now)
    state[USED] = state[USED] + entry[AMOUNT]
    state[RESERVED] = state[RESERVED] + entry[AMOUNT]
    entry[MARK] = state[WINDOW]
  end
end

if has_room then
  for i, entry in ipairs(entries) do
    take(entry, states[entry[KEY]], tonumber(ARGV[5 + (i - 1) * 6 + 4]))
    save(entry, states[entry[KEY]], now, KEEP_MS)
  end
  redis.call('HSET', KEYS[1], id, '0' .. cmsgpack.pack(entries))
  redis.call('ZADD', KEYS[2], digits(now + ttl), id)
  keep()
end
local reply = { has_room and 0 or 1, now }
for _, entry in ipairs(entries) do
  for _, number in ipairs(states[entry[KEY]]) do reply[#reply + 1] = number end
end
return reply
