-- A script for wrk: each thread takes one guest after the other through the whole flow: add-card, the
-- link, the page of the fake PSP, its form, the return to the shop. Prints a line of JSON at the end.
-- Arguments: the access token, the id of the center, a CSV file with the ids of guests in its first column.

local threads = {}

function setup(thread)
  thread:set("number", #threads)
  threads[#threads + 1] = thread
end

local guests, token, center, guest, place
local step = 1
stored, failed = 0, 0

function init(arguments)
  token, center = arguments[1], arguments[2]
  guests = {}
  local lines = io.lines(arguments[3])
  lines()
  for line in lines do
    guests[#guests + 1] = line:match("[^,]+")
  end
  -- Each thread has guests of its own.
  guest = number * 1000
end

local function path_of(address)
  return (address:gsub("^https?://[^/]+", ""))
end

-- Servers differ in the case of header names.
local function location(headers)
  return headers["Location"] or headers["location"]
end

local form_token

local steps = {
  {
    ask = function()
      guest = guest % #guests + 1
      local headers = {
        ["Authorization"] = "Bearer " .. token,
        ["Content-Type"] = "application/json",
      }
      local body = '{"center_id":"' .. center .. '","redirect_uri":"https://shop.example/cards"}'
      return wrk.format("POST", "/api/v1/guests/" .. guests[guest] .. "/accounts", headers, body)
    end,
    status = 200,
    take = function(_, body) place = path_of(body:match('"hosted_payment_uri":"([^"]+)"')) end,
  },
  {
    ask = function() return wrk.format("GET", place) end,
    status = 303,
    take = function(headers) place = path_of(location(headers)) end,
  },
  {
    ask = function() return wrk.format("GET", place) end,
    status = 200,
    take = function(_, body) form_token = body:match('name="form_token" value="(%w+)"') end,
  },
  {
    ask = function()
      local form = { ["Content-Type"] = "application/x-www-form-urlencoded" }
      local typed = "&number=4242424242424242&expiry=08+%2F+40&cvc=123"
      return wrk.format("POST", place, form, "form_token=" .. form_token .. typed)
    end,
    status = 303,
    take = function(headers) place = path_of(location(headers)) end,
  },
  {
    ask = function() return wrk.format("GET", place) end,
    status = 303,
    take = function(headers)
      if location(headers) == "https://shop.example/cards" then
        stored = stored + 1
      else
        failed = failed + 1
      end
    end,
  },
}

function request()
  return steps[step].ask()
end

function response(status, headers, body)
  if status == steps[step].status then
    steps[step].take(headers, body)
    step = step % #steps + 1
  else
    failed = failed + 1
    step = 1
  end
end

function done(summary)
  local all_stored, all_failed = 0, 0
  for _, thread in ipairs(threads) do
    all_stored = all_stored + thread:get("stored")
    all_failed = all_failed + thread:get("failed")
  end
  io.write(string.format(
    '{"stored":%d,"failed":%d,"seconds":%.6f}\n', all_stored, all_failed, summary.duration / 1e6
  ))
end
