-- One bucket's arithmetic, as in budget/state.rs, and reservations: the head of every script.
-- Before it stands `clock()`: microseconds since 1970.
--
-- KEYS[1] is the hash of open reservations (id to record), KEYS[2] the sorted set of their ends.
-- Others that a reservation names share their hash tag, so they live on the same node.
-- All numbers are whole and stay below 2^53, where a double is exact; what could grow beyond is
-- cut off at a bound that no true value reaches.

local TIME_MAX = 4503599627370496   -- 2^52 µs: the year 2112
local COST_MAX = 2251799813685248   -- 2^51 µs: 71 years of a rate
local AMOUNT_MAX = 9007199254740991 -- 2^53 - 1
-- A rate's refunds are counted round and round: only what came since a reservation matters.
local REFUND_WRAP = 2251799813685248
-- How long a key that says nothing any more stays, so that a clock's small step changes nothing.
local MARGIN_MS = 60000
-- Open reservations and taken slots, when nobody comes any more. The slots are never kept longer
-- than the reservations that hold them, so none is lost for good.
local KEEP_MS = 604800000
local DEBT_WINDOWS_MAX = 64

local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max

local function digits(number)
  return string.format('%.0f', number)
end

-- The day on which a month begins, the months being counted from March of year 0 (window.rs).
local function month_start(index)
  local year, month = floor(index / 12), index % 12
  local era, of_era = floor(year / 400), year % 400
  local day = floor((153 * month + 2) / 5) + 365 * of_era + floor(of_era / 4) - floor(of_era / 100)
  return era * 146097 + day - 719468
end

local function month_of(day)
  local shifted = day + 719468
  local era, of_era = floor(shifted / 146097), shifted % 146097
  local year = floor((of_era - floor(of_era / 1460) + floor(of_era / 36524)
    - floor(of_era / 146096)) / 365)
  local of_year = of_era - (365 * year + floor(year / 4) - floor(year / 100))
  return (era * 400 + year) * 12 + floor((5 * of_year + 2) / 153)
end

local LENGTH_S = { hour = 3600, day = 86400, month = 31 * 86400 }

-- The window that `now` lies in: its number and its end in microseconds.
local function window_at(period, now)
  local seconds = floor(now / 1000000)
  if period == 'month' then
    local index = month_of(floor(seconds / 86400))
    return index, month_start(index + 1) * 86400 * 1000000
  end
  local length = LENGTH_S[period]
  local index = floor(seconds / length)
  return index, (index + 1) * length * 1000000
end

-- A state's numbers, in the order of state.rs.
local ARRIVAL, REFUNDED, USED, RESERVED, DEBT, WINDOW, WINDOW_END = 1, 2, 3, 4, 5, 6, 7
local STATE = '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$'

local function parse(value)
  if not value then return { 0, 0, 0, 0, 0, 0, 0 } end
  local state = { string.match(value, STATE) }
  for i = 1, 7 do state[i] = tonumber(state[i]) end
  return state
end

-- Begins the window that `now` lies in. A clock that steps back stays in the later one.
local function roll(state, period, limit, now)
  local index, window_end = window_at(period, now)
  if index <= state[WINDOW] then return end
  local passed = state[WINDOW] == 0 and 0 or index - state[WINDOW]
  state[DEBT] = max(0, min(state[USED] + state[DEBT], AMOUNT_MAX) - limit * passed)
  state[USED], state[RESERVED] = 0, 0
  state[WINDOW], state[WINDOW_END] = index, window_end
end

-- A charge or an entry, as arrays:
-- KIND is rate, slots, hour, day or month; LIMIT a rate's size a minute or a window's.
local KEY, KIND, MEASURE, AMOUNT, LIMIT, MARK, BASE = 1, 2, 3, 4, 5, 6, 7

-- How far `amount` moves a rate, in microseconds, rounded up: Limit::rate_micros.
local function cost(entry, amount)
  local limit = entry[LIMIT]
  if entry[MEASURE] == 'requests' then return min(ceil(60000000 / limit) * amount, COST_MAX) end
  -- In two parts, neither of which leaves the whole numbers.
  local minutes, rest = floor(amount / limit), amount % limit
  return min(minutes * 60000000 + ceil(rest * 60000000 / limit), COST_MAX)
end

local function save(entry, state, now, slot_ttl)
  local key, kind = entry[KEY], entry[KIND]
  if kind == 'slots' then
    if state[USED] == 0 then
      redis.call('DEL', key)
      return
    end
  end
  -- Lua's own way to write a number has 14 digits.
  local value = string.format('%.0f %.0f %.0f %.0f %.0f %.0f %.0f', unpack(state))
  if kind == 'slots' then
    if slot_ttl then
      redis.call('SET', key, value, 'PX', slot_ttl)
    else
      redis.call('SET', key, value, 'KEEPTTL')
    end
    return
  end
  local lives
  if kind == 'rate' then
    lives = max(0, state[ARRIVAL] - now) / 1000
  else
    local over = max(0, state[USED] + state[DEBT] - entry[LIMIT])
    local windows = min(ceil(over / max(1, entry[LIMIT])), DEBT_WINDOWS_MAX)
    lives = max(0, state[WINDOW_END] - now) / 1000 + windows * LENGTH_S[kind] * 1000
  end
  redis.call('SET', key, value, 'PX', digits(ceil(lives) + MARGIN_MS))
end

-- What of an entry is charged: Spent::of.
local function charged(entry, spent)
  if spent.kind == 'nothing' then return 0 end
  if spent.kind == 'reserved' or entry[MEASURE] == 'requests' then return entry[AMOUNT] end
  return entry[MEASURE] == 'tokens' and spent.tokens or spent.usd
end

local function settle_rate(entry, state, actual, now)
  local reserved, used = cost(entry, entry[AMOUNT]), cost(entry, actual)
  if used > reserved then
    state[ARRIVAL] = min(max(state[ARRIVAL], now) + (used - reserved), TIME_MAX)
    return
  end
  local since = (state[REFUNDED] - entry[BASE]) % REFUND_WRAP
  local refund = min(reserved - used, max(0, entry[MARK] - since - now))
  state[ARRIVAL] = state[ARRIVAL] - min(refund, state[ARRIVAL])
  state[REFUNDED] = (state[REFUNDED] + refund) % REFUND_WRAP
end

local function settle_window(entry, state, actual, now)
  local amount = entry[AMOUNT]
  roll(state, entry[KIND], entry[LIMIT], now)
  if entry[MARK] == state[WINDOW] then
    state[RESERVED] = max(0, state[RESERVED] - amount)
    state[USED] = min(max(0, state[USED] - amount) + actual, AMOUNT_MAX)
  elseif actual > amount then
    state[DEBT] = min(state[DEBT] + actual - amount, AMOUNT_MAX)
  else
    state[DEBT] = max(0, state[DEBT] - (amount - actual))
  end
end

-- Puts what was spent in the place of what was reserved, and forgets the reservation.
local function settle(id, record, spent, now)
  for _, entry in ipairs(cmsgpack.unpack(string.sub(record, 2))) do
    local state = parse(redis.call('GET', entry[KEY]))
    if entry[KIND] == 'slots' then
      state[USED] = max(0, state[USED] - 1)
    elseif entry[KIND] == 'rate' then
      settle_rate(entry, state, charged(entry, spent), now)
    else
      settle_window(entry, state, charged(entry, spent), now)
    end
    save(entry, state, now)
  end
  redis.call('HDEL', KEYS[1], id)
  redis.call('ZREM', KEYS[2], id)
end

-- A record's first byte says whether its call has left.
local function expire(id, record, now)
  settle(id, record, { kind = string.sub(record, 1, 1) == '1' and 'reserved' or 'nothing' }, now)
end

-- Ends at most `most` reservations that nobody renewed.
local function sweep(now, most)
  local ids = redis.call('ZRANGE', KEYS[2], '-inf', digits(now), 'BYSCORE', 'LIMIT', 0, most)
  for _, id in ipairs(ids) do
    local record = redis.call('HGET', KEYS[1], id)
    if record then expire(id, record, now) else redis.call('ZREM', KEYS[2], id) end
  end
end

-- The record of a reservation that is open: one that is past its time is ended instead.
local function open(id, now)
  local record = redis.call('HGET', KEYS[1], id)
  if not record then return nil end
  local ends = redis.call('ZSCORE', KEYS[2], id)
  if ends and tonumber(ends) > now then return record end
  expire(id, record, now)
  return nil
end

local function keep()
  redis.call('PEXPIRE', KEYS[1], KEEP_MS)
  redis.call('PEXPIRE', KEYS[2], KEEP_MS)
end
