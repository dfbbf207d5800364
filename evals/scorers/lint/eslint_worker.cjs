// One eslint, kept warm: a JSON line {code, language} in, a JSON line {findings} or {broken} or {missing} out.
// It only parses. Started as: node eslint_worker.cjs <folder of the eslint package> <rules as JSON>
"use strict";
const { createRequire } = require("node:module");
const path = require("node:path");
const readline = require("node:readline");

const [folder, rulesText] = process.argv.slice(2);
const here = createRequire(path.join(folder, "package.json"));
const { Linter } = here("eslint");
const rules = JSON.parse(rulesText);
const GLOBALS =
  "console process require module exports globalThis setTimeout clearTimeout setInterval clearInterval setImmediate " +
  "queueMicrotask structuredClone fetch URL URLSearchParams TextEncoder TextDecoder AbortController Buffer __dirname " +
  "__filename window document navigator localStorage performance crypto";
const globals = Object.fromEntries(GLOBALS.split(" ").map((name) => [name, "readonly"]));

function typescriptParser() {
  for (const name of ["@typescript-eslint/parser", "typescript-eslint"]) {
    try {
      const found = here(name);
      return found.parser ?? found;
    } catch (error) {
      if (error.code !== "MODULE_NOT_FOUND") throw error;
    }
  }
  return null;
}

function configFor(language, sourceType) {
  const languageOptions = { ecmaVersion: "latest", sourceType, globals, parserOptions: { ecmaFeatures: { jsx: true } } };
  if (language === "typescript") languageOptions.parser = typescriptParser();
  const linterOptions = { noInlineConfig: true, reportUnusedDisableDirectives: "off" };
  return { files: ["**"], languageOptions, linterOptions, rules: rules[language] };
}

const linter = new Linter({ configType: "flat" });

function lint({ code, language }) {
  if (language === "typescript" && !typescriptParser()) return { missing: "@typescript-eslint/parser" };
  const filename = language === "typescript" ? "answer.ts" : "answer.js";
  let messages = linter.verify(code, configFor(language, "module"), { filename });
  if (messages.some((one) => one.fatal) && language === "javascript") {
    messages = linter.verify(code, configFor(language, "script"), { filename }); // `with`, octals: what modules refuse
  }
  const broken = messages.find((one) => one.fatal);
  if (broken) return { broken: `line ${broken.line}: ${broken.message}` };
  return { findings: messages.map(({ ruleId, line, message }) => ({ rule: ruleId, line, message })) };
}

const say = (message) => process.stdout.write(JSON.stringify(message) + "\n");
say({ version: Linter.version });
readline.createInterface({ input: process.stdin }).on("line", (line) => {
  try {
    say(lint(JSON.parse(line)));
  } catch (error) {
    say({ failed: String(error).slice(0, 300) });
  }
});
