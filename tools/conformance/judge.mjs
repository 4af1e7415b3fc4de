// judge.mjs SUITE RESULTS.json: what the suite's own judge says of the results, as JSON.
// One object per required, optimal and check test: {kind, group, id, verdict, why}.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const [suite, file] = process.argv.slice(2)
const load = name => import(pathToFileURL(join(suite, name)))
const { determineTestResult, resultTypes } = await load('test-engine/lib/results.mjs')
const groups = [(await load('tests/index.mjs')).default].flat()
const results = JSON.parse(readFileSync(file, 'utf8'))
const nameOf = type => Object.keys(resultTypes).find(name => resultTypes[name] === type)

const verdicts = groups.flatMap(group => group.tests
  .filter(test => test.browser_only !== true)
  .map(test => ({
    kind: test.kind ?? 'required',
    group: group.id,
    id: test.id,
    verdict: nameOf(determineTestResult(groups, test.id, results)),
    why: Array.isArray(results[test.id]) ? results[test.id].join(': ') : '',
    needs: test.depends_on ?? []
  })))
console.log(JSON.stringify(verdicts))
