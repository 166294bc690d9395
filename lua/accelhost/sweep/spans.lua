--- The times at which a trial ran: trial.spans = {{started, ended, state = with which it left}, ...}, in seconds since
--- 1970. Pauses and interruptions are between them, so a trial's duration is their sum.
local spans = {}

--- The trial starts to run.
function spans.begin(trial, now)
  trial.spans = trial.spans or {}
  trial.spans[#trial.spans + 1] = {started = now, state = "running"}
end

--- The trial no longer runs; without an open span nothing happens.
---@param state string "paused", "waiting", or the state in which it ended
function spans.close(trial, now, state)
  local span = trial.spans and trial.spans[#trial.spans]
  if span and not span.ended then span.ended, span.state = now, state end
end

-- event of the store -> the state in which it leaves a trial; nil: that which the event names
local left_by = {pause = "paused", interrupt = "waiting", retry = "failed"}

--- Apply an event of the store.
---@param event {kind: string, time: number, detail: string?}
function spans.apply(trial, event)
  if event.kind == "start" then return spans.begin(trial, event.time) end
  if left_by[event.kind] or event.kind == "end" then
    spans.close(trial, event.time, left_by[event.kind] or event.detail)
  end
end

return spans
