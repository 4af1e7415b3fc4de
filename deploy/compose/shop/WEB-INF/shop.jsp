<%@ page contentType="text/plain; charset=UTF-8" session="false" trimDirectiveWhitespaces="true" %>
<%! private final java.util.concurrent.atomic.AtomicLong answers = new java.util.concurrent.atomic.AtomicLong(); %>
<% response.setHeader("Cache-Control", "public, max-age=60"); %>
The shop.
received <%= request.getRequestURI() %>
read as  <%= request.getServletPath() %><%= request.getPathInfo() == null ? "" : request.getPathInfo() %>
answer number <%= answers.incrementAndGet() %> of this servlet
