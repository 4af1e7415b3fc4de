<%@ page contentType="text/plain; charset=UTF-8" session="false" trimDirectiveWhitespaces="true" %>
<% response.setHeader("Cache-Control", "private"); %>
The administrator's page.
received <%= request.getRequestURI() %>
read as  <%= request.getServletPath() %><%= request.getPathInfo() == null ? "" : request.getPathInfo() %>
