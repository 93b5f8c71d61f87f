-- A script for wrk: sends add-card for one guest after the other, and prints a line of JSON at the end.
-- Arguments: the access token, the id of the center, a CSV file with the ids of guests in its first column.

local requests = {}
local sent = 0

function init(arguments)
  local token, center, guests = arguments[1], arguments[2], arguments[3]
  local headers = {
    ["Authorization"] = "Bearer " .. token,
    ["Content-Type"] = "application/json",
  }
  local body = '{"center_id":"' .. center .. '","redirect_uri":"https://shop.example/cards"}'
  local lines = io.lines(guests)
  lines()
  for line in lines do
    local path = "/api/v1/guests/" .. line:match("[^,]+") .. "/accounts"
    requests[#requests + 1] = wrk.format("POST", path, headers, body)
  end
end

function request()
  sent = sent % #requests + 1
  return requests[sent]
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '{"responses":%d,"refused":%d,"cut_off":%d,"seconds":%.6f,"p50_ms":%.3f,"p99_ms":%.3f}\n',
    summary.requests, errors.status, errors.connect + errors.read + errors.write + errors.timeout,
    summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3
  ))
end
