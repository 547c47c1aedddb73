from crewai import Agent, Crew, Task

intake = Agent(role="intake", goal="route", backstory="a clerk", allow_delegation=True)
legal = Agent(role="legal", goal="review clauses", backstory="a lawyer")
task = Task(description="Is clause 4.2 safe?", expected_output="a verdict", agent=intake)
print(Crew(agents=[intake, legal], tasks=[task]).kickoff().raw)
