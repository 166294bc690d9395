--- accelhost sweep report --serve: the page of a study for browsers on this host, made when it is requested. The page
--- asks every two seconds whether the study has changed, and loads itself again.
local C = require "accelhost._C"
local markup = require "accelhost.sweep.report.markup"
local source = require "accelhost.sweep.report.source"

local HTML, TEXT = "text/html; charset=utf-8", "text/plain; charset=utf-8"

local LARGEST = 2 ^ 24 -- bytes of a file that is sent; checkpoints have more

-- Added to the page: no reload while the page is hidden or a row is being searched for.
local POLLING = [[
<script>
(function () {
  var seen = null;
  setInterval(function () {
    var find = document.getElementById("find");
    if (document.hidden || find && find.value) return;
    fetch("/changes").then(function (answer) { return answer.text(); }).then(function (text) {
      if (seen !== null && text !== seen) location.reload();
      seen = text;
    }).catch(function () {});
  }, 2000);
})();
</script>
]]

local function page_of(directory)
  local study = source.read(directory)
  local text = require "accelhost.sweep.report".html(study, {base = ""})
  return (text:gsub("</body>", function() return POLLING .. "</body>" end))
end

-- Return the path of a file or folder below the study's trials; nil of any other target.
local function path_of(directory, target)
  local path = target:gsub("%%(%x%x)", function(code) return string.char(tonumber(code, 16)) end)
  if not path:find "^/trials/" or path:find "%z" then return nil end
  for part in path:gmatch "[^/]+" do
    if part == ".." then return nil end
  end
  return directory .. path:gsub("/+$", "")
end

local function folder_page(path)
  local lines = {"<!DOCTYPE html><meta charset=utf-8><title>trial</title><ul>"}
  local names = C.data.list_folder(path)
  table.sort(names)
  for _, name in ipairs(names) do
    lines[#lines + 1] = ('<li><a href="%s">%s</a>'):format(markup.address(name), markup.text(name))
  end
  return table.concat(lines, "\n")
end

-- Return the status, type and body for a target.
local function answer_to(directory, target)
  target = target:gsub("[?#].*$", "")
  if target == "/" then return "200 OK", HTML, page_of(directory) end
  if target == "/changes" then return "200 OK", TEXT, source.version(directory) end
  local path = path_of(directory, target)
  local kind = path and C.data.look(path)
  if kind == "folder" and target:find "/$" then return "200 OK", HTML, folder_page(path) end
  local file = kind and kind ~= "folder" and io.open(path, "rb")
  if not file then return "404 Not Found", TEXT, "not found\n" end
  local size = file:seek "end"
  file:seek "set"
  local text = size <= LARGEST and file:read "*a"
  file:close()
  if not text then return "413 Content Too Large", TEXT, ("%s is larger than 16 MiB\n"):format(path) end
  return "200 OK", TEXT, text
end

--- Serve until the process is ended.
---@param directory string the study's
---@param port integer on 127.0.0.1; 0: any that is free
return function(directory, port)
  source.version(directory) -- raises without a study
  local socket, chosen = C.http.listen(port)
  local hosts = {["127.0.0.1:" .. chosen] = true, ["localhost:" .. chosen] = true}
  io.write(("the page: http://127.0.0.1:%d/ (Ctrl-C ends it)\n"):format(chosen))
  io.stdout:flush()
  while true do
    local connection, target, host = C.http.accept(socket)
    -- A page of another site, whose name resolves to this host, is refused.
    if connection and not hosts[host or ""] then
      C.http.answer(connection, "403 Forbidden", TEXT, "expected the address 127.0.0.1\n")
    elseif connection then
      local fine, status, kind, body = pcall(answer_to, directory, target)
      if not fine then status, kind, body = "500 Internal Server Error", TEXT, tostring(status) .. "\n" end
      C.http.answer(connection, status, kind, body)
    end
  end
end
