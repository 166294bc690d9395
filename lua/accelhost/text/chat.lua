--- Conversations as texts, by a tokenizer's chat template.
local arguments = require "accelhost.util.arguments"
local jinja = require "accelhost.text.jinja"

local fail = arguments.fail
local chat = {}

-- The template: the caller's, or the tokenizer's; of several by name "tool_use" where there are tools, else "default".
local function template_of(tokenizer, given, tools)
  local template = given or tokenizer.chat_template
  if template == nil then
    fail "apply_chat_template: the tokenizer has no chat_template; set tokenizer.chat_template or pass one"
  end
  if type(template) == "table" then template = tools and template.tool_use or template.default end
  if type(template) ~= "string" then fail "apply_chat_template: chat_template has no template 'default'" end
  return template
end

local function check_messages(messages, name)
  for i, message in ipairs(messages) do
    if type(message) ~= "table" or message.role == nil then
      fail("apply_chat_template: %s: message %d: expected a table with role and content", name, i - 1)
    end
  end
end

local function strip(text) return text:match "^%s*(.-)%s*$" end

-- The text up to the end of the last message, which the model is to continue.
local function cut_after(text, messages)
  local content = messages[#messages].content
  if type(content) ~= "string" or strip(content) == "" then
    fail "apply_chat_template: continue_final_message: the last message has no text"
  end
  local wanted, place = strip(content), nil
  local at = 1
  while true do
    local first = text:find(wanted, at, true)
    if not first then break end
    place, at = first, first + 1
  end
  if not place then fail "apply_chat_template: continue_final_message: the template changes the last message" end
  local whole = content:match "^%s*(.*)$"
  local kept = whole == content and text:sub(place, place + #whole - 1) == whole and whole or wanted
  return text:sub(1, place + #kept - 1)
end

--- The text of one conversation.
---@param tokenizer Tokenizer
---@param messages table[]
---@param options table chat_template, tools, documents, add_generation_prompt, continue_final_message,
--- chat_template_kwargs
---@return string
function chat.render(tokenizer, messages, options, null)
  check_messages(messages, "conversation")
  local names = {
    messages = #messages > 0 and messages or setmetatable({}, {}), tools = options.tools or null,
    documents = options.documents or null, add_generation_prompt = options.add_generation_prompt,
  }
  for _, role in ipairs(options.roles) do names[role] = tokenizer[role] end
  for name, value in pairs(options.chat_template_kwargs or {}) do names[name] = value end
  local text, message = jinja.render(template_of(tokenizer, options.chat_template, options.tools), names)
  if not text then fail("apply_chat_template: %s", message) end
  return options.continue_final_message and cut_after(text, messages) or text
end

return chat
