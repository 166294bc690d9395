--- A study's file: SQLite, written only by the process that runs the sweep; other processes may read it meanwhile
--- (sqlite3 STUDY/study.db).
--
-- No report is lost when any process is killed: each event is one transaction in a write-ahead log (synchronous =
-- NORMAL; only a system crash may lose the last events, and leaves the file intact). The log
-- needs memory that its processes share, so one host: a network file system has a rollback journal in its place.
-- `event` is the authoritative log, in order and append-only; `trial` has the current state.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local json = require "accelhost.util.json"

local fail = arguments.fail

local VERSION = 1

local schema = {
  -- Facts of the study by name: version, name, created (seconds since 1970), command, metric, direction, space, ...
  [[CREATE TABLE study (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT]],
  -- A row for each trial. params: the sampler's choice as JSON; value: of the metric, unchanged; configuration: the
  -- configuration's number, shared by its replicates; seed: added to the script's own; error: the reason is in line 1.
  [[CREATE TABLE trial (
    number INTEGER PRIMARY KEY,
    state TEXT NOT NULL CHECK (state IN ('waiting', 'running', 'paused', 'pruned', 'complete', 'failed')),
    configuration INTEGER NOT NULL, replicate INTEGER NOT NULL DEFAULT 0, attempt INTEGER NOT NULL DEFAULT 0,
    queued INTEGER NOT NULL DEFAULT 0, bracket INTEGER, slot INTEGER,
    params TEXT NOT NULL, value REAL, started REAL, ended REAL, error TEXT) STRICT]],
  -- The events, in order. kind: start, report (step, value, answer, detail: all its metrics as JSON), log (the same
  -- without the study's metric), pause, promote, release (from the pruner), interrupt, retry (detail: the error), end
  -- (value, detail: the state).
  [[CREATE TABLE event (
    id INTEGER PRIMARY KEY, trial INTEGER NOT NULL REFERENCES trial (number), kind TEXT NOT NULL, time REAL NOT NULL,
    step INTEGER, value REAL, answer TEXT, detail TEXT) STRICT]],
  [[CREATE INDEX event_of_trial ON event (trial, step) WHERE kind = 'report']],
  -- The learning curves.
  [[CREATE VIEW report AS SELECT trial, step, value, time, detail AS metrics FROM event WHERE kind = 'report']],
  -- The parameters, a row each: SELECT * FROM param WHERE name = 'lr'.
  [[CREATE VIEW param AS SELECT trial.number AS trial, each.key AS name, each.value AS value
    FROM trial, json_each(trial.params) AS each]],
}

local function set_journal(database, folder)
  if not C.io.is_shared(folder) then
    local fine, rows = pcall(database.execute, database, "PRAGMA journal_mode = WAL")
    if fine and rows[1].journal_mode ~= "delete" then
      database:execute "PRAGMA synchronous = NORMAL"
      return
    end
  end
  database:execute "PRAGMA journal_mode = TRUNCATE"
end

local Store = class.new "Store"

--- Open a study's file.
---@param mode "read"|"write"|"create"
function Store:init(path, mode)
  self.path = path
  local file = mode ~= "create" and io.open(path)
  local folder = path:match "^(.*)/[^/]*$" or "."
  if file then
    file:close()
  elseif mode ~= "create" then
    fail("there is no study in '%s' (study.db is not there; `accelhost sweep FILE` makes FILE.study)", folder)
  end
  self._db = C.sqlite.open(path, mode)
  if mode ~= "read" then
    set_journal(self._db, folder)
    if mode == "create" then self:_create() end
  end
  local version = self:get "version"
  if version ~= VERSION then
    fail("'%s' was written by %s accelhost (format %s, this one reads %d)", path,
      version and version > VERSION and "a newer" or "another", tostring(version), VERSION)
  end
end

function Store:_create()
  self:transaction(function()
    if self._db:execute("SELECT count(*) AS n FROM sqlite_master")[1].n > 0 then return end
    for _, statement in ipairs(schema) do self._db:execute(statement) end
    self:put("version", VERSION)
  end)
end

--- Close it.
function Store:close() self._db:close() end

--- Do several writes as one.
---@param call fun()
function Store:transaction(call)
  self._db:execute "BEGIN IMMEDIATE"
  local fine, reason = xpcall(call, debug.traceback)
  self._db:execute(fine and "COMMIT" or "ROLLBACK")
  if not fine then error(reason, 0) end
end

--- Keep a fact of the study.
function Store:put(key, value)
  self._db:execute("INSERT INTO study VALUES (:key, :value) ON CONFLICT DO UPDATE SET value = :value",
    {key = key, value = json.encode(value)})
end

--- A fact of the study, nil when there is none.
function Store:get(key)
  local fine, rows = pcall(self._db.execute, self._db, "SELECT value FROM study WHERE key = ?", {key})
  if not fine then fail("'%s' is no study: %s", self.path, tostring(rows)) end
  return rows[1] and json.decode(rows[1].value)
end

--- Add a trial.
function Store:add(trial)
  self._db:execute([[INSERT INTO trial (number, state, configuration, replicate, queued, bracket, params)
    VALUES (:number, :state, :group, :replicate, :queued, :bracket, :params)]], {
    number = trial.number, state = trial.state, group = trial.group, replicate = trial.replicate,
    queued = trial.queued, bracket = trial.bracket,
    params = next(trial.params) and json.encode(trial.params) or "{}",
  })
end

--- Write the state of a trial.
function Store:update(trial)
  self._db:execute([[UPDATE trial SET state = :state, attempt = :attempt, slot = :slot, value = :value,
    started = :started, ended = :ended, error = :error WHERE number = :number]], trial)
end

--- Delete a trial and its events.
function Store:remove(number)
  self._db:execute("DELETE FROM event WHERE trial = ?", {number})
  self._db:execute("DELETE FROM trial WHERE number = ?", {number})
end

--- Store an event.
---@param time number seconds since 1970
---@param more? table step, value, answer, detail
function Store:event(trial, kind, time, more)
  more = more or {}
  self._db:execute([[INSERT INTO event (trial, kind, time, step, value, answer, detail)
    VALUES (:trial, :kind, :time, :step, :value, :answer, :detail)]],
    {trial = trial.number, kind = kind, time = time, step = more.step, value = more.value, answer = more.answer,
      detail = more.detail})
end

--- All that happened, in order.
---@return table[] events {id, trial, kind, time, step, value, answer, detail}
function Store:events() return self._db:execute "SELECT * FROM event ORDER BY id" end

--- Return the number of the last event.
---@return integer
function Store:count() return self._db:execute("SELECT coalesce(max(id), 0) AS n FROM event")[1].n end

--- All trials by number, without their reports.
---@return table[] trials
function Store:trials()
  local rows = self._db:execute "SELECT *, configuration AS 'group' FROM trial ORDER BY number"
  for _, row in ipairs(rows) do
    row.params, row.reports, row.queued, row.configuration = json.decode(row.params), {}, row.queued == 1, nil
  end
  return rows
end

return Store
